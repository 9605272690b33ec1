//! `TransmitBuf` against a plain vector of octets.

use bytes::Bytes;
use denrei_wire::TransmitBuf;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Op {
    Put(usize),
    Zeros(usize),
    Body(usize),
    Mark,
    Truncate,
    Clear,
}

fn any_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (0usize..40).prop_map(Op::Put),
        1 => (0usize..40).prop_map(Op::Zeros),
        4 => (0usize..600).prop_map(Op::Body),
        3 => Just(Op::Mark),
        2 => Just(Op::Truncate),
        1 => Just(Op::Clear),
    ]
}

proptest! {
    #[test]
    fn it_holds_what_was_appended_and_not_taken_back(ops in prop::collection::vec(any_op(), 1..60)) {
        let mut buf = TransmitBuf::new(64);
        let mut oracle: Vec<u8> = Vec::new();
        let mut marks = Vec::new();
        for (step, op) in ops.into_iter().enumerate() {
            let fill = step as u8 + 1;
            match op {
                Op::Put(len) => { buf.put(&vec![fill; len]); oracle.extend(vec![fill; len]); }
                Op::Zeros(len) => { buf.put_zeros(len); oracle.extend(vec![0; len]); }
                Op::Body(len) => {
                    let mut body = vec![0xff; 3]; body.extend(vec![fill; len]); body.push(0xff);
                    buf.put_body(&Bytes::from(body), 3..3 + len);
                    oracle.extend(vec![fill; len]);
                }
                Op::Mark => marks.push((buf.mark(), oracle.len())),
                Op::Truncate => if let Some((mark, len)) = marks.pop() {
                    buf.truncate(mark);
                    oracle.truncate(len);
                }
                Op::Clear => { buf.clear(); oracle.clear(); marks.clear(); }
            }
            let mut flat = Vec::new();
            buf.copy_into(&mut flat);
            prop_assert_eq!(&flat, &oracle);
            prop_assert_eq!(buf.len(), oracle.len());
            for (mark, len) in &marks {
                let since: Vec<u8> = buf.pieces_since(*mark).flatten().copied().collect();
                prop_assert_eq!(&since, &oracle[*len..]);
                prop_assert_eq!(mark.len(), *len);
            }
        }
    }
}
