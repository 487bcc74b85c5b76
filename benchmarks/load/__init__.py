"""The parts of benchmarks/load_client.py."""
