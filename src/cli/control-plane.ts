import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { createApiServer } from '../apiserver/api-server.ts';
import { KINDS } from '../apiserver/kinds.ts';
import { createSchemaService } from '../apiserver/schema/service.ts';
import { createTableService } from '../apiserver/tables/tables.ts';
import { NODE_PREFIX } from '../cluster/plan.ts';
import { clusterPaths, requireCluster } from '../cluster/state.ts';
import { startControllers } from '../controllers/start.ts';
import { createClient } from '../kube/client.ts';
import { systemClock } from '../lib/clock.ts';
import { type Command, parseArguments, textOption } from './command.ts';
import { createLogger, exitOnUnhandled, shutdownSignal } from './logging.ts';
import { KUBERNETES_VERSION } from './version.ts';

/** Descriptors that `up` opens and hands down: the first listener is number 3. */
const FIRST_LISTENER_FD = 3;

export const command: Command = {
  help: `Usage: fairlead control-plane --name NAME --listeners N

Started by "fairlead up": the API server and the controllers of a local cluster. N descriptors, from number 3 on,
are listening sockets.
`,
  async run(argv) {
    const parsed = parseArguments(
      'control-plane',
      argv,
      { name: { type: 'string' }, listeners: { type: 'string' } },
      { least: 0, most: 0, names: '' },
    );
    const state = requireCluster(textOption(parsed, 'name', ''));
    const count = Number(textOption(parsed, 'listeners', '0'));
    const logger = createLogger('control-plane');
    exitOnUnhandled(logger);
    const signal = shutdownSignal();
    const paths = clusterPaths(state.name);
    const pem = (file: string) => readFileSync(join(paths.pki, file), 'utf8');
    const ca = pem('ca.crt');
    const server = createApiServer({
      dataFile: paths.data,
      serviceCidrs: state.serviceCidrs,
      nodePorts: { first: 30000, last: 32767 },
      advertise: { addresses: state.controlPlaneAddresses, port: state.apiPort },
      tls: { cert: pem('apiserver.crt'), key: pem('apiserver.key'), clientCa: ca },
      nodeTls: { cert: pem('apiserver.crt'), key: pem('apiserver.key'), ca },
      tokenKey: pem('service-account.key'),
      mountTokens: true,
      schema: createSchemaService({ kinds: KINDS }),
      tables: createTableService(),
      version: KUBERNETES_VERSION,
      clock: systemClock,
      random: Math.random,
      logger,
    });
    await server.listen(Array.from({ length: count }, (_, i) => ({ fd: FIRST_LISTENER_FD + i })));
    logger.info({ port: state.apiPort }, 'API server listens');
    const controllers = startControllers({
      client: createClient(server.transport, 'fairlead-controllers'),
      clock: systemClock,
      random: Math.random,
      logger,
      signal,
      options: {
        clusterCidrs: state.podCidrs,
        nodeMaskSizes: NODE_PREFIX,
        caBundle: ca,
        loadBalancerPools: [{ name: 'default', ranges: state.loadBalancerPools }],
      },
    });
    controllers.ready.then(
      () => logger.info({}, 'controllers run'),
      (error: unknown) => {
        if (!signal.aborted) throw error;
      },
    );
    if (!signal.aborted) await once(signal, 'abort');
    await server.close();
    return 0;
  },
};
