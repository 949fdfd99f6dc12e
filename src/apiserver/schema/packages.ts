import { DESCRIPTIONS, PACKAGES } from './generated/index.ts';
import { createTypeRegistry, type TypeRegistry } from './type-schema.ts';

/** Creates a registry of all types that the server describes. */
export function createApiTypes(): TypeRegistry {
  return createTypeRegistry(PACKAGES);
}

/** Descriptions by type and field of a package; that of the type itself has an empty name. */
export type Descriptions = Readonly<Record<string, Readonly<Record<string, string>>>>;

/** Loads the descriptions of a package's fields: only OpenAPI documents need this text. */
export async function loadDescriptions(packageName: string): Promise<Descriptions> {
  const module = await DESCRIPTIONS[packageName]?.();
  return module ? (JSON.parse(module.descriptions) as Descriptions) : {};
}
