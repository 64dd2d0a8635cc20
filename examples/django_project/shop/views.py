from django.db import connection, transaction
from django.http import Http404, HttpRequest, JsonResponse
from django.views.decorators.csrf import csrf_exempt

from oncron.contrib.django import app
from oncron.errors import NotFound
from shop.models import Order
from shop.tasks import pack


@csrf_exempt
def place(request: HttpRequest, item: str) -> JsonResponse:
    with transaction.atomic():  # the order and its run are there together, or neither is
        order = Order.objects.create(item=item)
        run = pack.options(connection=connection).enqueue_sync(order.id)
    return JsonResponse({"run": run.id}, status=202)


def read(request: HttpRequest, run_id: str) -> JsonResponse:
    try:
        run = app.sync(app.get_run(run_id))
    except NotFound as error:
        raise Http404(str(error)) from None
    return JsonResponse({"state": run.state, "result": run.result})
