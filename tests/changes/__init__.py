"""Whether what must change is right: in random clusters every suggestion places its pod, and one change is found where
one is enough."""
