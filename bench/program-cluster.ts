import type { Dataplane } from '../src/dataplane/dataplane.ts';
import { largeClusterTable } from './large-cluster.ts';

/** Programs N Services of one endpoint each. The result removes them, and closes the data plane. */
export async function programCluster(dataplane: Dataplane, services: number): Promise<() => Promise<void>> {
  const end = async () => {
    await dataplane.remove();
    await dataplane.close();
  };
  try {
    const { failed } = await dataplane.sync(largeClusterTable(services, 1).commit().map);
    if (failed[0]) throw failed[0].error;
    return end;
  } catch (error) {
    await end();
    throw error;
  }
}
