from __future__ import annotations

from st_xlret.commands import main

if __name__ == "__main__":
    main()
