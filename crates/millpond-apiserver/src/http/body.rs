//! Response bodies: whole, in pieces that were never copied together, or a watch that goes on.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::Stream;
use http_body::{Frame, SizeHint};

/// A body of this server's responses.
pub struct ApiBody(Kind);

enum Kind {
    /// Pieces that are known already.
    Pieces { pieces: VecDeque<Bytes>, left: u64 },
    /// Pieces that are made when they are asked for.
    Made(Box<dyn FnMut() -> Option<Bytes> + Send>),
    /// Pieces that come as they happen.
    Stream(Pin<Box<dyn Stream<Item = Bytes> + Send>>),
}

impl ApiBody {
    /// No bytes.
    pub fn empty() -> Self {
        Self::pieces(VecDeque::new())
    }

    /// A body of a single piece.
    pub fn whole(bytes: impl Into<Bytes>) -> Self {
        Self::pieces(VecDeque::from([bytes.into()]))
    }

    /// Several pieces in order.
    pub fn pieces(pieces: VecDeque<Bytes>) -> Self {
        let left = pieces.iter().map(|piece| piece.len() as u64).sum();
        Self(Kind::Pieces { pieces, left })
    }

    /// Pieces that are made when they are asked for.
    pub fn pieces_from(make: impl FnMut() -> Option<Bytes> + Send + 'static) -> Self {
        Self(Kind::Made(Box::new(make)))
    }

    /// Pieces as a stream yields them.
    pub fn stream(stream: impl Stream<Item = Bytes> + Send + 'static) -> Self {
        Self(Kind::Stream(Box::pin(stream)))
    }
}

impl http_body::Body for ApiBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut self.get_mut().0 {
            Kind::Pieces { pieces, left } => {
                let piece = pieces.pop_front();
                *left -= piece.as_ref().map_or(0, |piece| piece.len() as u64);
                Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
            }
            Kind::Made(make) => Poll::Ready(make().map(|piece| Ok(Frame::data(piece)))),
            Kind::Stream(stream) => {
                stream.as_mut().poll_next(context).map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(&self.0, Kind::Pieces { pieces, .. } if pieces.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Pieces { left, .. } => SizeHint::with_exact(*left),
            Kind::Made(_) | Kind::Stream(_) => SizeHint::default(),
        }
    }
}
