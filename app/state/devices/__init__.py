"""Devices and who has them: claims with what was just written to them, devices in use, classes by extended resource (KEP-4381)."""
