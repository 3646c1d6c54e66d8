"""The patch formats of the API: JSON patch, merge patch and strategic merge patch."""
