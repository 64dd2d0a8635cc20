from django.contrib import admin
from django.urls import path
from shop import views

urlpatterns = [
    path("admin/", admin.site.urls),
    path("orders/<str:item>", views.place),
    path("runs/<str:run_id>", views.read),
]
