"""What an installation weighs: the product, and the reporter that goes into training images. Needs `make setup`.

The product is installed from locked versions into a clean environment, as `make wheels` does; its size is that of all
files.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from tests.house.wheels import ROOT, build, environment, size_mb


def main() -> None:
    """Install both and print a table."""
    product, reporters = build(ROOT / "dist")
    with TemporaryDirectory(prefix="trainwarden-size-") as folder:
        work = Path(folder)
        environment(work / "product", ROOT / "requirements" / "product.txt", [product, reporters])
        size = size_mb(work / "product")
        wheel = reporters.stat().st_size / 1e6
    print("| what | MB |")
    print("| --- | ---: |")
    print(f"| trainwarden, with all it needs | {size:.0f} |")
    print(f"| trainwarden-reporters, the wheel alone | {wheel:.2f} |")


if __name__ == "__main__":
    main()
