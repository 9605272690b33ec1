"""Dask's clusters over denrei: the comm backend `denrei://`.

    from dask.distributed import Client, LocalCluster
    client = Client(LocalCluster(protocol="denrei://"))

Dask opens a connection for each thing it talks about; here each is a channel of the one session that
two processes share, on one UDP port for a listener and one for all that a process connects to.
`client.scatter(data, broadcast=True)` sends the data once, to a group of all workers.

Settings, by `dask.config` (or the environment, `DASK_DENREI__GROUP`):

* `denrei.settings`: of the nodes, such as `{"key_file": "cluster.key"}`;
* `denrei.group`: the multicast address of scatter's groups, 239.255.78.67:7467 if not set; `None`: no groups;
* `denrei.group-options`: of the groups (`denrei.GROUP_OPTIONS`).
"""

from denrei.dask._comm import DenreiBackend, DenreiComm, DenreiConnector, DenreiListener
from denrei.dask._scatter import GroupScatter

__all__ = ["DenreiBackend", "DenreiComm", "DenreiConnector", "DenreiListener", "GroupScatter"]
