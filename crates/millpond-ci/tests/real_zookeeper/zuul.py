"""What Zuul's scheduler does with its own classes: requests, locks, uses, holds and returns nodes.

Arguments: the address of ZooKeeper, then the files of certificate, key and authority. Prints a line for each step.
"""
import queue
import sys
import types

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from zuul import model
from zuul.nodepool import Nodepool
from zuul.zk import ZooKeeperClient

# Far above what a step takes.
PATIENCE = 60


class Scheduler(Nodepool):
    """Tells of every request that ends, after Zuul has handled that."""

    def __init__(self, client):
        self.ended = queue.Queue()
        self.known = set()
        super().__init__(client, 'zuul', None, scheduler=True)

    def _sendNodesProvisionedEvent(self, request):
        super()._sendNodesProvisionedEvent(request)
        self.ended.put(request.id)

    def request(self, labels, relative_priority=0):
        nodeset = model.NodeSet()
        for index, label in enumerate(labels):
            nodeset.addNode(model.Node([f'node-{index}'], label))
        job = types.SimpleNamespace(nodeset=nodeset, uuid='job-uuid', name='unit-tests')
        return self.requestNodes('build-set', job, 'acme', 'check', None, 200, relative_priority), nodeset

    def wait(self, *requests):
        """Waits until exactly these requests have ended; gives them as they are then."""
        wanted = {request.id for request in requests}
        while wanted:
            ended = self.ended.get(timeout=PATIENCE)
            # Zuul's cache may read a request that has ended once more.
            if ended not in self.known:
                wanted.remove(ended)
                self.known.add(ended)
        return [self.zk_nodepool.getNodeRequest(request.id, cached=True) for request in requests]


def main(hosts, certificate, key, authority):
    trace.set_tracer_provider(TracerProvider())
    client = ZooKeeperClient(hosts, timeout=10, tls_cert=certificate, tls_key=key, tls_ca=authority)
    client.connect()
    zuul = Scheduler(client)

    pools = zuul.zk_nodepool.getRegisteredLaunchers()
    print('labels', sorted({label for pool in pools for label in pool.supported_labels}))

    two, nodeset = zuul.request(['small', 'small'])
    [two] = zuul.wait(two)
    print('two', two.state, len(two.nodes), zuul.getNodesetInfo(two, nodeset).provider)
    zuul.acceptNodes(two, nodeset)
    zuul.useNodeSet(nodeset, 'acme', 'project')
    for node in nodeset.getNodes():
        print('node', node.state, node.label, node.connection_type, node.connection_port, node.username,
              node.host_keys, node.tenant_name, node.requestor)

    # More than is free: one waits until the nodes are back, one is cancelled, and one can never be met.
    first, again = zuul.request(['small', 'small'], 5)
    cancelled, _ = zuul.request(['small'] * 3)
    never, _ = zuul.request(['large'])
    [never] = zuul.wait(never)
    print('never', never.state)
    zuul.deleteNodeRequest(never.id)
    first = zuul.zk_nodepool.getNodeRequest(first.id)
    zuul.reviseRequest(first, 1)
    print('revised', zuul.zk_nodepool.getNodeRequest(first.id).relative_priority)
    zuul.cancelRequest(cancelled)
    zuul.returnNodeSet(nodeset, None, 'acme', 'project', 1)
    [first] = zuul.wait(first)
    print('first', first.state, 'new nodes:', not set(first.nodes) & {node.id for node in nodeset.getNodes()})
    zuul.acceptNodes(first, again)
    zuul.useNodeSet(again, 'acme', 'project')
    hold = model.HoldRequest()
    hold.tenant, hold.project, hold.job, hold.ref_filter = 'acme', 'project', 'unit-tests', '.*'
    hold.reason, hold.max_count = 'look at it', 1
    zuul.zk_nodepool.storeHoldRequest(hold)
    zuul.holdNodeSet(again, hold, types.SimpleNamespace(uuid='build'), 1)
    zuul.unlockNodeSet(again)
    held = zuul.zk_nodepool.getNode(first.nodes[0])
    print('hold', held.state, held.hold_job, held.comment)
    zuul.zk_nodepool.deleteHoldRequest(hold, None)
    zuul.stop()
    client.disconnect()


main(*sys.argv[1:])
