"""The ranking index: finds memories and mail by terms and vectors. See README.md."""
