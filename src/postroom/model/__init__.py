"""Values that all layers share: frozen dataclasses without input or output."""
