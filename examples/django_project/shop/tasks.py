from oncron import every
from oncron.contrib.django import app
from shop.models import Order


@app.task
def pack(order_id: int) -> str:
    order = Order.objects.get(id=order_id)
    order.packed = True
    order.save()
    return order.item


@app.task
async def count() -> int:
    return await Order.objects.acount()


@app.schedule(every(seconds=1))
def heartbeat() -> None:
    print(f"heartbeat: {Order.objects.filter(packed=False).count()} to pack", flush=True)
