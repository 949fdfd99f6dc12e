import { startApi } from './api-fixture.ts';

/** An API server in a separate process, for benchmarks that measure its processor time: prints its kubeconfig. */
const api = await startApi({ serviceCidrs: ['10.96.0.0/16'] });
console.log(api.kubeconfig);
process.on('SIGTERM', async () => {
  await api.close();
  process.exit(0);
});
