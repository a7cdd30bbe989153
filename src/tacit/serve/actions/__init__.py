"""What a caller can do: plain functions of a service, a caller and public values.

Each looks first whether the caller's role allows it (:mod:`tacit.serve.access`), and returns values that
JSON has. Routes call them, and a page can call them as well: neither decides anything itself.
"""

__all__: list[str] = []
