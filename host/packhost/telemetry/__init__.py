"""What a running host tells whoever looks after it: traces and metrics by OpenTelemetry, and logs by line."""
