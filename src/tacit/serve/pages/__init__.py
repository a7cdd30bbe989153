"""The pages of the service: what people see in a browser, rendered here, with no build step.

``router`` has all routes. Each finds out who visits (``visits``), calls the same actions as the API, and
renders a template (``rendering``); what was typed into a form, and what is wrong with it, is in ``forms``;
``charts`` draws budgets. ``entering``, ``holdings``, ``asking``, ``auditing`` and ``people`` are the views.

Everything works without a script: forms are posted, and a post that changed something ends in a redirection.
The one script makes previews appear while one types, and shows how jobs get on. A form that asks carries a
key of its own, so that sending it twice charges once. No page holds anything that depends on private rows
beyond what was released: pages have no way to the rows but the actions.
"""

from __future__ import annotations

from fastapi import APIRouter

from tacit.serve.pages import asking, auditing, entering, holdings, people

__all__ = ["router"]

router = APIRouter(include_in_schema=False)
for _views in (entering, holdings, asking, auditing, people):
    router.include_router(_views.router)
