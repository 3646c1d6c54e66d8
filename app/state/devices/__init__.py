"""Devices and their allocation: ResourceClaims, devices in use, and DeviceClasses by extended resource (KEP-4381)."""
