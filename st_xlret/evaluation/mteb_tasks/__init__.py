"""The benchmarks as mteb tasks over local files: results in the format of mteb, without a network.

```python
import mteb
from st_xlret.evaluation.mteb_tasks import LAReQATask

results = mteb.evaluate(model, LAReQATask("lareqa/xquad-r", languages=["fr", "de"]), cache=None)
```
"""

from __future__ import annotations

from st_xlret.evaluation.mteb_tasks.bitext import BUCCTask, TatoebaTask
from st_xlret.evaluation.mteb_tasks.retrieval import (
    LAReQATask,
    LocalRetrievalTask,
    MewsliXTask,
    MrTyDiTask,
    XORRetrieveTask,
)

__all__ = [
    "BUCCTask",
    "LAReQATask",
    "LocalRetrievalTask",
    "MewsliXTask",
    "MrTyDiTask",
    "TatoebaTask",
    "XORRetrieveTask",
]
