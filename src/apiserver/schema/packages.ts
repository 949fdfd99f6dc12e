import { DESCRIPTIONS, PACKAGES } from './generated/index.ts';
import { createTypeRegistry, type TypeRegistry } from './type-schema.ts';

/** A registry of every type that the server describes. */
export function createApiTypes(): TypeRegistry {
  return createTypeRegistry(PACKAGES);
}

/** Descriptions by type and field of a package; a type's own is under the empty name. */
export type Descriptions = Readonly<Record<string, Readonly<Record<string, string>>>>;

/** Loads the descriptions of a package's fields: text that only OpenAPI documents need. */
export async function loadDescriptions(packageName: string): Promise<Descriptions> {
  const module = await DESCRIPTIONS[packageName]?.();
  return module ? (JSON.parse(module.descriptions) as Descriptions) : {};
}
