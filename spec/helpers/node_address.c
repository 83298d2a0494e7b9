/* node_address.c: linked into the binary for specs. With SPEC_NODE_ADDRESS=HOST:PORT in the environment the process
 * takes part in its cluster, as if it listened there. */
#include "nodes/nodes.h"
#include <stdlib.h>

mp_nodes *__real_mp_nodes_new(const char *node, bool takes_sessions, const atomic_bool *draining);
mp_nodes *__wrap_mp_nodes_new(const char *node, bool takes_sessions, const atomic_bool *draining);

mp_nodes *__wrap_mp_nodes_new(const char *node, bool takes_sessions, const atomic_bool *draining)
{
    mp_nodes *nodes = __real_mp_nodes_new(node, takes_sessions, draining);
    const char *address = getenv("SPEC_NODE_ADDRESS");
    if (address != NULL)
        mp_nodes_set_address(nodes, address);
    return nodes;
}
