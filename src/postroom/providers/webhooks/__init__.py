"""Events told to programs elsewhere, over HTTP."""
