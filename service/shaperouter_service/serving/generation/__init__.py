"""Generations: from a request to runs on the fleet, and from their events to text."""
