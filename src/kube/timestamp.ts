/** Formats milliseconds since 1970 as Kubernetes formats times (meta/v1 Time): RFC 3339, UTC, whole seconds. */
export function timestamp(ms: number): string {
  return `${new Date(ms).toISOString().slice(0, 19)}Z`;
}
