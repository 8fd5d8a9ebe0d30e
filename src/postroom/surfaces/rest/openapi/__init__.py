"""The OpenAPI document, from the tables alone."""

from postroom.surfaces.rest.openapi.document import document

__all__ = ["document"]
