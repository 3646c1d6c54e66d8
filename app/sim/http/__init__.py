"""The HTTP side of the embedded cluster: requests in, objects, lists, tables and watches out."""
