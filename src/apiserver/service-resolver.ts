/** Finds an address behind a port of a Service. Throws Error with the reason. */
export type ServiceResolver = (
  namespace: string,
  name: string,
  port: number,
) => { readonly host: string; readonly port: number };
