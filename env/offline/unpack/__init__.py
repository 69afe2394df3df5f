"""What unpacks the offline bundle: it imports env.console alone, which travels with it."""
