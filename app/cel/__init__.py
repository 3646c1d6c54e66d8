"""The Common Expression Language as Kubernetes uses it to select devices (KEP-2876, KEP-4381).

``parser`` and ``macros`` turn an expression into a tree (``syntax``), ``checker`` infers its ``types``, and ``planner``
turns it into closures that compute ``values`` and count their cost (``costs``). ``environment`` declares the functions
of ``standard``, ``extensions`` and ``kubernetes``. The rest of the application uses ``devices``, which loads the other
modules when it compiles the first expression.
"""
