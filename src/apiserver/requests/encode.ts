import { stringify } from 'yaml';
import type { SchemaService } from '../schema-service.ts';
import { type Format, MEDIA_TYPES, type Representation } from './negotiation.ts';

/** An object in a format, with a newline after the text forms as upstream. */
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

/** YAML with sorted keys, as Go's encoder writes it. */
export function toYaml(object: object): string {
  // Through JSON first, so that undefined fields and toJSON are as in the other form.
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
