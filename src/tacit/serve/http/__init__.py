"""The service over HTTP: versioned JSON under ``/api/v1``, described by OpenAPI.

``application`` puts it together, ``routes`` has one function per route, each of which calls one action,
``bodies`` says what a request may hold, ``limits`` and ``connections`` bound what a client may send and how
slowly, ``running`` runs it with its workers. FastAPI and uvicorn are known here and nowhere else.
"""

__all__: list[str] = []
