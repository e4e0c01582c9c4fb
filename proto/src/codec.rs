//! A codec that bounds the memory of a message before it decodes it.
//!
//! An empty nested message has two bytes on the wire and, decoded, the size of its struct. A few
//! mebibytes of them would decode to a hundred times as much. So the decoder counts the nested
//! messages of an [`AgentMessage`] on the wire first.

use std::marker::PhantomData;

use prost::Message;
use prost::bytes::Buf;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder};
use tonic_prost::{ProstCodec, ProstDecoder, ProstEncoder};

use crate::v1::{
    AgentMessage, Capacity, Certificate, CopyKeyAnswer, CopyKeyRequest, EnrolRequest,
    FlavorCapacity, Hello, HubMessage, JobTrouble, LevelCapacity, Observation, Observed,
    PreemptionQuote, QueueCapacity, Reason, RenewRequest, Taint,
};

/// The most memory of a decoded message, without its strings, in bytes. An agent's largest message
/// has 1 MiB of observations, which decode to about 3 MiB.
pub const MAX_UNPACKED: usize = 16 * 1024 * 1024;
/// The largest first message of a session, in bytes.
pub const MAX_FIRST: usize = 64 * 1024;

/// A message whose decoded size is known from its encoding.
pub trait DecodedSize: Message + Default + Send + 'static {
    /// The memory of the decoded message without its strings, in bytes. Zero where the encoded
    /// length bounds it.
    ///
    /// # Errors
    /// The bytes are not a valid encoding.
    fn decoded_size(_wire: &[u8]) -> Result<usize, prost::DecodeError> {
        Ok(0)
    }

    /// The most bytes that the first message of a stream may have.
    fn max_first() -> usize {
        usize::MAX
    }
}

impl DecodedSize for HubMessage {}
impl DecodedSize for Certificate {}
impl DecodedSize for EnrolRequest {}
impl DecodedSize for RenewRequest {}
impl DecodedSize for CopyKeyRequest {}
impl DecodedSize for CopyKeyAnswer {}

impl DecodedSize for AgentMessage {
    fn decoded_size(wire: &[u8]) -> Result<usize, prost::DecodeError> {
        AGENT_MESSAGE.decoded_size(wire)
    }

    fn max_first() -> usize {
        MAX_FIRST
    }
}

/// A repeated field: the memory of each element, and the repeated fields inside it.
struct Field {
    tag: u32,
    size: usize,
    fields: &'static [Self],
}

const fn field<T>(tag: u32, fields: &'static [Field]) -> Field {
    Field { tag, size: size_of::<T>(), fields }
}

/// The repeated fields of an agent's messages, and the fields that contain them.
const AGENT_MESSAGE: Field = field::<AgentMessage>(
    0,
    &[
        field::<Hello>(2, &[field::<String>(5, &[])]),
        field::<Observed>(
            3,
            &[field::<Observation>(
                3,
                &[
                    field::<Reason>(6, &[]),
                    field::<PreemptionQuote>(9, &[]),
                    field::<JobTrouble>(14, &[]),
                ],
            )],
        ),
        field::<Capacity>(
            4,
            &[field::<QueueCapacity>(
                1,
                // A map entry is two strings and its slot in the table.
                &[field::<FlavorCapacity>(
                    7,
                    &[
                        field::<[String; 3]>(7, &[]),
                        field::<Taint>(8, &[]),
                        field::<LevelCapacity>(9, &[]),
                    ],
                )],
            )],
        ),
    ],
);

impl Field {
    fn decoded_size(&self, mut wire: &[u8]) -> Result<usize, prost::DecodeError> {
        let mut total = 0_usize;
        while wire.has_remaining() {
            let (tag, wire_type) = decode_key(&mut wire)?;
            let field = self
                .fields
                .iter()
                .find(|field| field.tag == tag && wire_type == WireType::LengthDelimited);
            let Some(field) = field else {
                skip_field(wire_type, tag, &mut wire, DecodeContext::default())?;
                continue;
            };
            let length = usize::try_from(decode_varint(&mut wire)?).unwrap_or(usize::MAX);
            // A truncated message fails when it is decoded, with a better error.
            let inside = wire.get(..length).unwrap_or(wire);
            total = total.saturating_add(field.size);
            if !field.fields.is_empty() {
                total = total.saturating_add(field.decoded_size(inside)?);
            }
            wire.advance(inside.len());
        }
        Ok(total)
    }
}

/// The codec of all services of the protocol.
#[derive(Debug)]
pub struct BoundedCodec<E, D>(PhantomData<(E, D)>);

impl<E, D> Default for BoundedCodec<E, D> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<E: Message + Send + 'static, D: DecodedSize> Codec for BoundedCodec<E, D> {
    type Encode = E;
    type Decode = D;
    type Encoder = ProstEncoder<E>;
    type Decoder = BoundedDecoder<D>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<E, D>::default().encoder()
    }

    fn decoder(&mut self) -> Self::Decoder {
        BoundedDecoder { inner: ProstCodec::<E, D>::default().decoder(), has_decoded: false }
    }
}

/// Decodes messages within [`MAX_FIRST`] and [`MAX_UNPACKED`], and rejects others.
#[derive(Debug)]
pub struct BoundedDecoder<D> {
    inner: ProstDecoder<D>,
    has_decoded: bool,
}

impl<D: DecodedSize> Decoder for BoundedDecoder<D> {
    type Item = D;
    type Error = Status;

    fn decode(&mut self, buf: &mut DecodeBuf<'_>) -> Result<Option<D>, Status> {
        let wire = buf.chunk();
        let too_much = |what: &str| Status::out_of_range(what.to_owned());
        if wire.len() < buf.remaining() {
            return Err(Status::internal("a message that is not in one piece"));
        }
        if !std::mem::replace(&mut self.has_decoded, true) && wire.len() > D::max_first() {
            return Err(too_much(&format!(
                "the first message has {} bytes, more than {MAX_FIRST}",
                wire.len()
            )));
        }
        let size = D::decoded_size(wire).map_err(|error| Status::internal(error.to_string()))?;
        if size > MAX_UNPACKED {
            return Err(too_much(&format!(
                "a message's parts would take {size} bytes, more than {MAX_UNPACKED}"
            )));
        }
        self.inner.decode(buf)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1::agent_message::Kind;

    fn size(kind: Kind) -> usize {
        AgentMessage::decoded_size(
            &AgentMessage { session_id: 1, kind: Some(kind) }.encode_to_vec(),
        )
        .unwrap()
    }

    fn observed(observations: Vec<Observation>) -> Kind {
        Kind::Observed(Observed { sequence: 1, observations, ..Observed::default() })
    }

    #[test]
    fn decoded_size_counts_every_repeated_field() {
        let empty = size(observed(Vec::new()));
        assert_eq!(empty, size_of::<Observed>());
        let observation = size_of::<Observation>();
        assert_eq!(size(observed(vec![Observation::default(); 1000])), empty + 1000 * observation);
        let reasons = Observation { reasons: vec![Reason::default(); 5], ..Observation::default() };
        assert_eq!(size(observed(vec![reasons])), empty + observation + 5 * size_of::<Reason>());
        let flavor = FlavorCapacity {
            node_labels: [("a".to_owned(), "b".to_owned())].into(),
            taints: vec![Taint::default(); 2],
            levels: vec![LevelCapacity::default(); 4],
            ..FlavorCapacity::default()
        };
        let queue = QueueCapacity { flavors: vec![flavor; 3], ..QueueCapacity::default() };
        let entry = size_of::<[String; 3]>();
        let expected = size_of::<Capacity>()
            + size_of::<QueueCapacity>()
            + 3 * (size_of::<FlavorCapacity>()
                + entry
                + 2 * size_of::<Taint>()
                + 4 * size_of::<LevelCapacity>());
        assert_eq!(
            size(Kind::Capacity(Capacity { queues: vec![queue], ..Capacity::default() })),
            expected
        );
        let kinds = vec!["batch/v1, Kind=Job".to_owned(); 2];
        let hello = Hello { software: "x".to_owned(), kinds, ..Hello::default() };
        assert_eq!(size(Kind::Hello(hello)), size_of::<Hello>() + 2 * size_of::<String>());
        assert_eq!(size(Kind::DesiredAck(7)), 0);
    }

    #[test]
    fn largest_agent_message_is_far_below_bound() {
        // The agent starts a new message after 1 MiB, and each observation has at least 128 bytes.
        let one = Observation {
            workload_uid: "0".repeat(36),
            namespace: "n".repeat(30),
            name: "n".repeat(40),
            reasons: vec![Reason { code: "c".repeat(10), message: String::new() }],
            ..Observation::default()
        };
        assert!(size(observed(vec![one; 8192])) < MAX_UNPACKED / 4);
        assert!(
            size(observed(vec![Observation::default(); 2 << 20])) > 10 * MAX_UNPACKED,
            "and a flood is above it"
        );
    }

    #[test]
    fn invalid_encoding_has_no_size() {
        assert!(AgentMessage::decoded_size(&[0xff; 20]).is_err());
        // An observation longer than the rest of the message.
        assert_eq!(AgentMessage::decoded_size(&[0x1a, 0x7f]).unwrap(), size_of::<Observed>());
    }
}
