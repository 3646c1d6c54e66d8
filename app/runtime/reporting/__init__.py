"""What pods and people are told: events, conditions, stories, explanations, logs and metrics."""
