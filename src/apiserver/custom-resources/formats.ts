import { isIP } from 'node:net';
import { ownMember } from '../../lib/own-member.ts';

/** Formats that apiextensions-apiserver checks (kube-openapi/pkg/validation/strfmt); others are not checked. */
const FORMATS: Readonly<Record<string, (text: string) => boolean>> = {
  'date-time': (text) =>
    /^\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)$/.test(text) &&
    !Number.isNaN(Date.parse(text)),
  date: (text) => /^\d{4}-\d\d-\d\d$/.test(text) && !Number.isNaN(Date.parse(text)),
  duration: (text) => /^-?(\d+(\.\d*)?(ns|us|µs|ms|s|m|h|d|w))+$/.test(text) || /^\d+ ?[a-z]+$/.test(text),
  byte: (text) => /^[A-Za-z0-9+/]*={0,2}$/.test(text) && text.length % 4 === 0,
  uuid: (text) => /^[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}$/i.test(text),
  uuid3: (text) => /^[0-9a-f]{8}-?[0-9a-f]{4}-?3[0-9a-f]{3}-?[0-9a-f]{4}-?[0-9a-f]{12}$/i.test(text),
  uuid4: (text) => /^[0-9a-f]{8}-?[0-9a-f]{4}-?4[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$/i.test(text),
  uuid5: (text) => /^[0-9a-f]{8}-?[0-9a-f]{4}-?5[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$/i.test(text),
  ipv4: (text) => isIP(text) === 4,
  ipv6: (text) => isIP(text) === 6,
  cidr: (text) => {
    const [address = '', length = '', more] = text.split('/');
    const version = isIP(address);
    return (
      more === undefined &&
      version > 0 &&
      /^\d{1,3}$/.test(length) &&
      Number(length) <= (version === 4 ? 32 : 128)
    );
  },
  mac: (text) => /^([0-9a-f]{2}[:-]){5}[0-9a-f]{2}$/i.test(text),
  email: (text) => /^[^\s@]+@[^\s@]+$/.test(text),
  hostname: (text) =>
    text.length <= 255 &&
    text
      .replace(/\.$/, '')
      .split('.')
      .every((label) => /^[a-z0-9_]([-a-z0-9_]*[a-z0-9_])?$/i.test(label)),
  uri: (text) => URL.canParse(text),
  bsonobjectid: (text) => /^[0-9a-f]{24}$/i.test(text),
  isbn: (text) => /^(97[89])?\d{9}[\dX]$/.test(text.replace(/[- ]/g, '')),
  hexcolor: (text) => /^#?([0-9a-f]{3}|[0-9a-f]{6})$/i.test(text),
  rgbcolor: (text) => /^rgb\((\s*\d{1,3}\s*,){2}\s*\d{1,3}\s*\)$/.test(text),
  creditcard: (text) => /^\d{13,19}$/.test(text.replace(/[- ]/g, '')),
  ssn: (text) => /^\d{3}-\d{2}-\d{4}$/.test(text),
};

/** Reports whether a text has a format; formats that are not checked match every text. */
export function isFormat(format: string, text: string): boolean {
  return ownMember(FORMATS, format)?.(text) ?? true;
}
