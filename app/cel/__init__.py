"""The Common Expression Language as Kubernetes speaks it (KEP-2876, KEP-4381), for selectors of devices.

An expression is parsed (``parser``, ``macros``), checked (``checker``, ``declarations``), and planned into closures
(``planner``) that work on ``values`` and count what they cost (``costs``). ``devices`` is what the rest of the application
uses. Nothing here is loaded before the first expression is.
"""
