"""Mail that other providers received for us, as each of them posts it."""
