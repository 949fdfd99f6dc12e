import { agentConfigurationSchema } from '../agent/configuration-schema.ts';
import { commandOpenApi } from '../cluster/command-openapi.ts';
import { schemaText } from '../lib/json-schema.ts';
import { clusterConfigurationSchema } from './cluster-configuration-schema.ts';
import { commandOutputSchema } from './command-output-schema.ts';

/** Returns the files of docs/schema/: name → text. */
export function schemaFiles(): ReadonlyMap<string, string> {
  return new Map([
    ['agent-configuration.json', schemaText(agentConfigurationSchema())],
    ['cluster.json', schemaText(clusterConfigurationSchema())],
    ['command-output.json', schemaText(commandOutputSchema())],
    ['commands.openapi.json', schemaText(commandOpenApi())],
  ]);
}
