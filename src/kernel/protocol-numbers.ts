/** Numbers of transport protocols in IP headers (IANA; linux/in.h). */
export const PROTOCOL_NUMBER: Readonly<Record<'TCP' | 'UDP' | 'SCTP', number>> = {
  TCP: 6,
  UDP: 17,
  SCTP: 132,
};
