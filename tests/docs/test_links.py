"""Links between the pages, and from them into the repository, lead somewhere."""

from __future__ import annotations

import pytest
from docs.pages import PAGES, anchors, links


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_resolve(page):
    for target in links(page):
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{page.name} links to {target}"
        assert not anchor or anchor in anchors(file), (
            f"{page.name} links to {target}, but {file.name} has no such heading"
        )
