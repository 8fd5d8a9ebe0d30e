"""CSS as browsers read it: from style sheets to the computed style of an element."""
