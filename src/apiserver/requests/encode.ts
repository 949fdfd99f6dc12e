import { stringify } from 'yaml';
import type { SchemaService } from '../schema-service.ts';
import { type Format, MEDIA_TYPES, type Representation } from './negotiation.ts';

/** Encodes an object in a format; text forms end with a newline, as upstream. */
export function encode(
  schema: SchemaService,
  form: Pick<Representation, 'format' | 'pretty'>,
  object: object,
): string | Buffer {
  switch (form.format) {
    case 'json':
      return `${form.pretty ? JSON.stringify(object, null, 2) : JSON.stringify(object)}\n`;
    case 'yaml':
      return toYaml(object);
    case 'protobuf':
      return schema.encodeProtobuf(object);
  }
}

/** Renders YAML with sorted keys, as Go's encoder does. */
function toYaml(object: object): string {
  // Converts to JSON first, so that undefined fields and toJSON are treated as in the JSON form.
  return stringify(JSON.parse(JSON.stringify(object)), {
    sortMapEntries: true,
    aliasDuplicateObjects: false,
    lineWidth: 0,
    indentSeq: false,
  });
}

export function contentTypeOf(format: Format): string {
  return MEDIA_TYPES[format];
}
