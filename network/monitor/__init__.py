"""What a process shows of itself over HTTP: health, readiness, metrics, status."""
