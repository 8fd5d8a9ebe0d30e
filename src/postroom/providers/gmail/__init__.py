"""Gmail accounts over the Gmail API: client, provider and sender."""
