/** An expression that cannot be compiled or evaluated; the message is the reason. */
export class CelError extends Error {
  override readonly name = 'CelError';
}
