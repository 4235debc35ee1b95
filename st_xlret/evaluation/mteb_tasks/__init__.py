"""The benchmarks as mteb tasks over local files: results in the format of mteb, without a network.

```python
import mteb
from st_xlret.evaluation.mteb_tasks import LAReQATask

results = mteb.evaluate(model, LAReQATask("lareqa/xquad-r", languages=["fr", "de"]), cache=None)
```

After `import st_xlret.evaluation.mteb_tasks`, mteb finds them by name too: `mteb.get_task("XLRetLAReQA")`. Their data
is then in the subfolders `lareqa`, `mrtydi`, `xor-retrieve`, `mewsli-x`, `tatoeba` and `bucc` of the folder that the
environment variable `XLRET_BENCHMARKS` names. mteb's own command, with these tasks, is
`python -m st_xlret.evaluation.mteb_tasks run -m MODEL -t XLRetLAReQA`, where MODEL is a name on the Hub: mteb loads no
model from a folder by itself.
"""

from __future__ import annotations

from st_xlret.evaluation.mteb_tasks.bitext import BUCCTask, TatoebaTask
from st_xlret.evaluation.mteb_tasks.registry import register
from st_xlret.evaluation.mteb_tasks.retrieval import (
    LAReQATask,
    LocalRetrievalTask,
    MewsliXTask,
    MrTyDiTask,
    XORRetrieveTask,
)

register(BUCCTask, LAReQATask, MewsliXTask, MrTyDiTask, TatoebaTask, XORRetrieveTask)

__all__ = [
    "BUCCTask",
    "LAReQATask",
    "LocalRetrievalTask",
    "MewsliXTask",
    "MrTyDiTask",
    "TatoebaTask",
    "XORRetrieveTask",
]
